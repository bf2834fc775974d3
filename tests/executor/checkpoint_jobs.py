"""What the ranks of the checkpoint tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adaptpipe.executor import Pipeline, load_checkpoint, save_checkpoint
from adaptpipe.solver import place

from .orders import problem_for, schedule_for
from .running.pipeline_jobs import refusal


def layers(seed: int, width: int = 3, count: int = 2) -> nn.Sequential:
    torch.manual_seed(seed)
    found = [nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(count - 1)]
    return nn.Sequential(*found, nn.Linear(3, width))


def open_pipeline(stage: int, module: nn.Module, tied: bool = False) -> Pipeline:
    placement = place("linear", 2)
    ties = [((0, "0.0.weight"), (1, "1.weight"))] if tied else []
    plan = problem_for(placement, (2,)), schedule_for(placement, (2,), "1f1b")
    return Pipeline(*plan, {stage: module}, nn.functional.mse_loss, tied=ties)


def refused(rank: int, world: int, folder: Path) -> dict[str, str]:
    """The messages of everything that can be wrong with saving and loading."""
    model = layers(0)
    stage = model[rank : rank + 1]
    optimizer = torch.optim.AdamW(stage.parameters(), lr=0.1)
    other = torch.optim.AdamW([nn.Parameter(torch.ones(2))])
    decay: list[nn.Parameter] = [p for p in stage.parameters() if p.dim() > 1]
    plain: list[nn.Parameter] = [p for p in stage.parameters() if p.dim() == 1]
    settings: list[dict[str, Any]] = [{"params": decay, "weight_decay": 0.5}, {"params": plain}]
    groups = torch.optim.AdamW(settings)
    path, empty, bare = folder / "good.pt", folder / "empty.pt", folder / "bare.pt"
    found = {}
    with open_pipeline(rank, stage) as pipeline:
        x = torch.randn(2, 3)
        pipeline.step(x, x)
        groups.step()
        save_checkpoint(path, pipeline, groups)
        save_checkpoint(bare, pipeline)
        if rank == 0:
            empty.write_text("nothing")
            torch.save([1, 2], folder / "list.pt")
            state = torch.load(path, weights_only=True)
            del state["optimizer"]["groups"][-1]
            torch.save(state, folder / "cut.pt")
        before = {key: value.clone() for key, value in stage.state_dict().items()}
        found = {
            "foreign": refusal(lambda: save_checkpoint(folder / "x.pt", pipeline, other if rank else optimizer)),
            "extra": refusal(lambda: save_checkpoint(folder / "x.pt", pipeline, extra={"at": place("linear", 2)})),
            "folder": refusal(lambda: save_checkpoint(path / "x.pt", pipeline)),
            "missing": refusal(lambda: load_checkpoint(folder / "none.pt", pipeline)),
            "text": refusal(lambda: load_checkpoint(empty, pipeline)),
            "list": refusal(lambda: load_checkpoint(folder / "list.pt", pipeline)),
            "no optimizer": refusal(lambda: load_checkpoint(bare, pipeline, optimizer)),
            "settings": refusal(lambda: load_checkpoint(path, pipeline, optimizer)),
            "cut": refusal(lambda: load_checkpoint(folder / "cut.pt", pipeline, groups)),
        }
        assert all(torch.equal(value, before[key]) for key, value in stage.state_dict().items())
    for name, changed in (("more", layers(0, count=3)), ("fewer", layers(0, count=1)), ("wide", layers(0, width=4))):
        part = changed[rank:] if rank else changed[:1]
        with open_pipeline(rank, part) as pipeline:
            found[name] = refusal(lambda: load_checkpoint(path, pipeline))  # called at once
    same = nn.Sequential(OrderedDict([("0", nn.Linear(3, 3))]))
    with open_pipeline(rank, same) as pipeline:
        found["keys"] = refusal(lambda: save_checkpoint(folder / "x.pt", pipeline))
    return found


def from_the_unsplit_model(rank: int, world: int, path: Path) -> None:
    """Load a state dict that has one of two tied copies only, and buffers."""
    whole = layers(7)
    if rank == 0:
        torch.save({key: value for key, value in whole.state_dict().items() if key != "1.weight"}, path)
    stage = layers(rank)[rank : rank + 1]
    with open_pipeline(rank, stage, tied=True) as pipeline:
        assert load_checkpoint(path, pipeline) == {}
        wanted = {**whole.state_dict(), "1.weight": whole.get_parameter("0.0.weight")}
        assert all(torch.equal(value, wanted[key]) for key, value in stage.state_dict().items())


def both(rank: int, world: int, folder: Path) -> dict[str, str]:
    """Load the unsplit model's weights; then everything that is refused."""
    from_the_unsplit_model(rank, world, folder / "whole.pt")
    return refused(rank, world, folder)
