#!/usr/bin/env python3
"""Drive supercast-agent as a subprocess: a finite batch, a crash, a retry.

    python3 demo.py PATH-TO-SUPERCAST-AGENT [LEDGER]

It needs nothing but Python and is no binding: it shows what any program has to
do. Write requests, close stdin, and only believe the answers: as many as there
were requests, with their ids, each with a result or an error. What has no
answer is sent again under its old id; what was committed comes back with its
first receipt, from another process too.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def batch(agent, ledger, commands):
    """Send {id: command} and return {id: response}."""
    lines = "".join(
        json.dumps({"version": 1, "id": id, "command": command}) + "\n"
        for id, command in commands.items()
    )
    done = subprocess.run(
        [agent, "--db", ledger], input=lines, capture_output=True, text=True, encoding="utf-8", timeout=60
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"the agent could not serve: {done.stderr.strip()}")
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if [a["id"] for a in answers] != list(commands):
        raise SystemExit(f"expected answers to {list(commands)}, got {answers}")
    return {a["id"]: a for a in answers}


def result(answer):
    if "error" in answer:
        raise SystemExit(f"{answer['id']}: {answer['error']['message']}")
    return answer["result"]


def main():
    agent = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        ledger = sys.argv[2] if len(sys.argv) > 2 else str(Path(folder) / "ledger.db")
        forecast = {"op": "forecast_record", "event_id": "rain", "forecaster": "ann", "probability": 0.3}
        first = batch(agent, ledger, {
            "demo-1": {"op": "event_create", "event_id": "rain", "question": "Does it rain on Sunday?"},
            "demo-2": forecast,
            "demo-3": {"op": "binary_score", "probability": 0.3, "outcome": True},
        })
        for answer in first.values():
            result(answer)
        print(f"{len(first)} requests, {len(first)} answers, ids in order")

        # As if the answer to demo-2 had been lost: the same id and command, in
        # a new process.
        again = batch(agent, ledger, {"demo-2": forecast, "demo-4": {"op": "event_get", "event_id": "rain"}})
        if result(again["demo-2"])["receipt"] != result(first["demo-2"])["receipt"]:
            raise SystemExit("the retry has another receipt")
        if result(again["demo-4"])["event"]["forecasts"] != 1:
            raise SystemExit("the retry was recorded twice")
        print("retried after a restart: the first receipt, one forecast")


if __name__ == "__main__":
    main()
