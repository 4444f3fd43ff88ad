"""Trains a linear classifier on scikit-learn's digits; called by `sandbox sweep` once for each combination."""

import argparse
import json
import pathlib

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

parser = argparse.ArgumentParser()
parser.add_argument("--config", type=pathlib.Path)
parser.add_argument("--output", type=pathlib.Path)
parser.add_argument("--adapter")
parser.add_argument("--seed", type=int)
args = parser.parse_args()

config = json.loads(args.config.read_text())
axes = config["perturbations"]
x, y = load_digits(return_X_y=True)
order = np.random.default_rng(args.seed).permutation(len(y))
x, y = x[order] / 16, y[order]
train, test = slice(0, 1200), slice(1200, None)

model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=axes["rate"], alpha=axes["penalty"], random_state=args.seed)
trace = []
for step in range(config["epochs"]):
    model.partial_fit(x[train], y[train], classes=np.arange(10))
    loss = log_loss(y[test], model.predict_proba(x[test]), labels=np.arange(10))
    trace.append({"step": step, "loss": loss})
    print(json.dumps({"metric": {"loss": loss, "step": step}}), flush=True)

(args.output / "trace_pack.jsonl").write_text("".join(json.dumps(line) + "\n" for line in trace))
manifest = {
    "run_id": f"digits-{args.seed}", "timestamp": "1970-01-01T00:00:00Z", "seed": args.seed, "artifacts": [],
    "metrics": {"accuracy": model.score(x[test], y[test]), "loss": loss},
}
(args.output / "manifest.json").write_text(json.dumps(manifest))
