"""A training loop in the manner of torchtitan: pipeline stages, each of them sharded by FSDP2.

    torchrun --nproc-per-node 4 examples/pytorch/titan_loop.py

As in torchtitan, a container has one optimizer for each part of the model that a rank holds, and
its state goes through torch.distributed.checkpoint under the names of the parameters. The stages
train different parameters, so each optimizer gets the process group of its own stage.
"""

import itertools
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from toy import LanguageModel, batches

import libmuon

OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


class Stage(nn.Module):
    """What one pipeline stage has of a model: the others' layers are taken out."""

    def __init__(self, model: LanguageModel, stage: int, stages: int) -> None:
        super().__init__()
        count = len(model.blocks) // stages
        mine = range(stage * count, (stage + 1) * count)
        self.embed = model.embed if stage == 0 else None
        self.blocks = nn.ModuleDict({str(i): model.blocks[i] for i in mine})
        is_last = stage == stages - 1
        self.norm, self.lm_head = (model.norm, model.lm_head) if is_last else (None, None)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.lm_head is None else self.lm_head(self.norm(x))


class Optimizers(Stateful):
    """One optimizer for each part of the model, as torchtitan's OptimizersContainer."""

    def __init__(self, parts: list[nn.Module], group: dist.ProcessGroup) -> None:
        self.parts = parts
        self.optimizers = []
        for part in parts:
            groups = libmuon.param_groups(
                part,
                muon={"lr": 0.02, "weight_decay": 0.01},
                adamw={"lr": 0.003},
                matrices={"*.qkv.weight": "rows / 3"},
            )
            optimizer = libmuon.Muon(groups, process_group=group, foreach=True, fused=False)
            self.optimizers.append(optimizer)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def state_dict(self) -> dict[str, object]:
        found = {}
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            found.update(get_optimizer_state_dict(part, optimizer, options=OPTIONS))
        return found

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            set_optimizer_state_dict(part, optimizer, state_dict, options=OPTIONS)


class Model(Stateful):
    """The weights of all parts that this rank holds."""

    def __init__(self, parts: list[nn.Module]) -> None:
        self.parts = parts

    def state_dict(self) -> dict[str, object]:
        return {k: v for part in self.parts for k, v in get_model_state_dict(part).items()}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        for part in self.parts:
            set_model_state_dict(part, state_dict, options=StateDictOptions(strict=False))


def loss_of(logits: Tensor, symbols: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), symbols.flatten())


class Trainer:
    def __init__(self, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        stage, stages = mesh["pp"].get_local_rank(), mesh["pp"].size()
        model = Stage(LanguageModel(layers=2 * stages), stage, stages)
        for block in model.blocks.values():
            fully_shard(block, mesh=mesh["fsdp"])
        fully_shard(model, mesh=mesh["fsdp"])
        self.is_last = stage == stages - 1
        self.schedule = ScheduleGPipe(
            PipelineStage(model, stage, stages, torch.device("cpu"), group=mesh.get_group("pp")),
            n_microbatches=2,
            loss_fn=loss_of,
        )
        self.model, self.optimizers = Model([model]), Optimizers([model], mesh.get_group("fsdp"))
        self.schedulers = [
            torch.optim.lr_scheduler.LambdaLR(each, lambda step: min(1.0, 2 - 2 * step / steps))
            for each in self.optimizers.optimizers
        ]

    def train(self, symbols: Tensor) -> float:
        self.optimizers.zero_grad()
        inputs, targets = symbols[:, :-1], symbols[:, 1:].contiguous()
        losses: list[Tensor] = []
        arguments = (inputs,) if mesh["pp"].get_local_rank() == 0 else ()
        self.schedule.step(*arguments, target=targets if self.is_last else None, losses=losses)
        self.optimizers.step()
        for scheduler in self.schedulers:
            scheduler.step()
        return torch.stack(losses).mean().item() if self.is_last else 0.0


STEPS = 60
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("pp", "fsdp"))
trainer = Trainer(seed=0, steps=STEPS)
data = batches(seed=mesh["fsdp"].get_local_rank())
folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder)

for step, symbols in enumerate(itertools.islice(data, STEPS)):
    if step == STEPS // 2:  # goes on in a new model and optimizer, from a checkpoint
        dcp.save({"model": trainer.model, "optimizer": trainer.optimizers}, checkpoint_id=folder[0])
        schedulers = [each.state_dict() for each in trainer.schedulers]
        trainer = Trainer(seed=1, steps=STEPS)
        dcp.load({"model": trainer.model, "optimizer": trainer.optimizers}, checkpoint_id=folder[0])
        for scheduler, state in zip(trainer.schedulers, schedulers, strict=True):
            scheduler.load_state_dict(state)
    loss = trainer.train(symbols)
    if trainer.is_last and mesh["fsdp"].get_local_rank() == 0:
        if step % 20 == 0:
            print(f"step {step:3}  loss {loss:.3f}", flush=True)
        if step == STEPS - 1:
            print(f"loss {loss:.3f}", flush=True)
dist.barrier()
if dist.get_rank() == 0:
    shutil.rmtree(folder[0])
dist.destroy_process_group()
