"""Sentences for metrics that belong to no algorithm. Those of an algorithm are
in its own file (`Algorithm.metrics`)."""

from __future__ import annotations

GENERAL = {
    "steps": "env steps so far, summed over all envs, whoever acted in them; holes are not counted",
    "updates": "updates so far",
    "episodes": "finished training episodes so far",
    "episode/return_mean": "mean undiscounted return of the last `log.window` training episodes, exploring, with "
    "training wrappers",
    "episode/return_min": "smallest of these returns",
    "episode/return_max": "largest of these returns",
    "episode/return_std": "standard deviation of these returns",
    "episode/length_mean": "mean number of steps of the same episodes",
    "episode/length_min": "shortest of these episodes",
    "episode/length_max": "longest of these episodes",
    "episode/length_std": "standard deviation of these lengths",
    "episode/success_mean": "share of these episodes that ended with `is_success` in their info (envs that tell it)",
    "env/renewals": "training envs of this process of the run that failed and were replaced so far; "
    "absent if there were none",
    "env/given_up": "training envs that failed too often, whose rows are holes from then on",
    "eval/return_mean": "mean return of the greedy episodes of the latest evaluation, on raw rewards",
    "eval/return_std": "standard deviation of these returns",
    "eval/return_min": "smallest of these returns",
    "eval/return_max": "largest of these returns",
    "eval/return_best": "largest `eval/return_mean` of the run so far",
    "eval/length_mean": "mean number of steps of the greedy episodes",
    "eval/success_mean": "share of the greedy episodes that ended with `is_success` in their info (envs that tell it)",
    "eval/steps": "env steps of training when the evaluation took place",
    "player/NAME/return_mean": "mean return of a player that `players:` names over the last `log.window` episodes, "
    "mean "
    "over its seats; all its other metrics have the same prefix",
    "eval/player/NAME/return_mean": "mean return of such a player in the greedy episodes, mean over its seats",
}

CLOCKS = {
    "time/seconds": "wall-clock seconds of the run, parts before a resume included",
    "time/steps_per_second": "env steps per second since the report before",
    "time/updates_per_second": "updates per second since the report before",
    "time/inserts_per_second": "steps inserted into the replay per second since the report before",
    "time/samples_per_second": "transitions drawn from the replay per second since the report before",
    "time/env": "share of the time since the report before that went into stepping the envs",
    "time/act": "share that went into choosing actions",
    "time/transport": "share that went into the rest of collecting: filling chunks and handing them over",
    "time/sample": "share that went into the store: adding steps, drawing batches, new priorities",
    "time/update": "share that went into updates",
    "time/eval": "share that went into evaluation",
    "time/checkpoint": "share that went into saving",
    "time/other": "the rest",
}

STORES = {
    "store/size": "steps stored now; in a rollout store, steps that wait for the next batch",
    "store/fill": "share of the capacity in use; in a rollout store, share of the next batch",
    "store/reuse": "draws per stored step (replay only)",
    "store/staleness": "age of the data in updates: replay, mean over the stored steps; rollout, mean lag behind the "
    "newest collector",
    "store/priority_mean": "mean of p^α over the steps that may be drawn (only with `store.priority`)",
    "store/priority_max": "largest p^α of these steps",
    "store/priority_min": "smallest p^α of these steps",
    "store/beta": "β of the importance weights",
    "store/demonstrations_size": "steps in `store.demonstrations`",
    "store/demonstrations_reuse": "draws per demonstrated step",
}

KNOBS = {  # knobs that are no option of their own
    "random": "share of uniform random actions: 1 during `algo.warmup`, then 0",
}
