"""A script that two data-parallel processes run, as torchrun starts it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import memowidgets as mw
from memowidgets.models.tokens import word_tokenizer
from tests.training.test_trainer_callback import (
    N,
    make_audit,
    script_rows,
    tiny,
    trainer,
)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    data = mw.data.make_mcqs(n=N, seed=0)
    tokenizer = word_tokenizer(data)
    model = tiny(len(tokenizer))
    audit = make_audit(model, tokenizer, data, folder / "run", 0.5)
    callback = mw.training.MemorizationCallback(audit, 0.2)
    course = {"per_device_train_batch_size": 2, "ddp_backend": "gloo"}
    made = trainer(
        model, script_rows(data, tokenizer), folder / "out", callback, **course
    )
    made.train()
    rank = made.args.process_index
    (folder / f"stopped-{rank}").write_text(str(made.state.global_step))
    # torch aborts if Gloo's thread lets go of its last work while Python ends
    time.sleep(1)
