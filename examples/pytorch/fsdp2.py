"""libmuon with FSDP2: the optimizer finds out how the parameters are sharded.

    torchrun --nproc-per-node 2 examples/pytorch/fsdp2.py

Each weight matrix is orthogonalized once, by one of the ranks, and the weights have the same bits
as those of a single process that is given the same gradients.
"""

import itertools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toy import LanguageModel, batches

import libmuon

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))

torch.manual_seed(0)
model = LanguageModel()
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)

groups = libmuon.param_groups(
    model,
    muon={"lr": 0.02, "weight_decay": 0.01},
    adamw={"lr": 0.003},
    matrices={"*.qkv.weight": "rows / 3"},
)
optimizer = libmuon.Muon(groups, clip_norm=1.0)

for step, symbols in enumerate(itertools.islice(batches(seed=rank), 60)):
    loss = model(symbols)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 and rank == 0:
        sent = optimizer.last.bytes_sent
        print(f"step {step:3}  loss {loss.item():.3f}  {sent} bytes sent", flush=True)

dist.all_reduce(loss := loss.detach().clone(), op=dist.ReduceOp.SUM)
if rank == 0:
    print(f"loss {loss.item() / world:.3f}")
dist.destroy_process_group()
