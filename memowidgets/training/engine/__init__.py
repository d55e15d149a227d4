"""Training of shadow models in local processes or any executor, each seed only once.

Beyond giving out orders, collecting results and starting a broken pool again, each mechanism is
here because a test fails without it:

=====================================================  =============================================
Claims of a shadow model, under a lock (`claims`)      two_audits_at_once_in_one_process,
                                                       two_processes_fill_one_directory
A worker that failed is left out (`leave_out`)         too_little_memory_is_left_out,
                                                       other_code_is_left_out
An order names the workers that may take it            starts_again_elsewhere_are_given_again
A model that killed two workers goes to no third       kills_two_dask_workers
An order goes again with the job (`lacks_job`)         is_sent_the_job_when_it_lacks_it
More orders than workers                               a_cluster_that_adapts_to_its_work_grows
A stopped process is named and killed                  a_worker_that_is_stopped_is_named
Workers end with their parent (`follow`)               killed_shadow_models_are_trained_again
Samples are mapped from a file (`sharing`)             workers_map_the_images_and_the_folder_goes
Files of dead processes are removed                    what_dead_processes_left_is_removed,
                                                       a_dead_process_loses_its_claims_at_once
A local process that grows stays                       needs_more_memory_than_at_first_stays
=====================================================  =============================================
"""
