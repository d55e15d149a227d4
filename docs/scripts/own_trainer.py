"""A Trainer of transformers as a function of its rows: python own_trainer.py MODEL."""

import sys
import tempfile

from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

import memowidgets as mw

NAME = sys.argv[1]  # of the hub, or a folder
notes = mw.data.make_patients(n=400, seed=0).to_frame()
texts = notes["question"].tolist()
data = mw.data.TextDataset.from_texts(texts, notes["ward"])


def fit(rows, watch, seed):
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForSequenceClassification.from_pretrained(
        NAME, num_labels=len(data.class_names), pad_token_id=tokenizer.pad_token_id
    )
    watch.follow(mw.models.SequenceClassifier.from_model(model, tokenizer))
    own = [{**tokenizer(texts[i]), "label": int(data.labels[i])} for i in rows]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=8,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
            seed=seed,
            save_strategy="no",
            report_to=[],
        )
        collate = DataCollatorWithPadding(tokenizer)
        trainer = Trainer(model, arguments, collate, own, callbacks=[watch.callback])
        trainer.train()


if __name__ == "__main__":
    audit = mw.Audit.from_script(fit, data, path="runs/trainer", checkpoint_every=1)
    audit.train()
    audit.run_references(2)
    audit.run_shadows(32)
    print(audit.flagged("reference", share=0.05))
    print(audit.evaluate("reference"))
    audit.report("trainer.html")
