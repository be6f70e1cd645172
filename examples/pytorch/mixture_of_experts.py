"""A mixture of experts: expert parallelism, and FSDP for everything else, in one optimizer.

    torchrun --nproc-per-node 2 examples/pytorch/mixture_of_experts.py

Each rank holds half of the experts, and half of every other tensor. The experts of a layer are
fused into tensors of three dims, in which each expert is a matrix of its own.
"""

import itertools

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from toy import Block, LanguageModel, batches

import libmuon


class Experts(nn.Module):
    """A router, and experts of which every token uses two. All ranks see the same batch."""

    def __init__(self, width: int, experts: int, mesh: dist.DeviceMesh) -> None:
        super().__init__()
        self.rank, self.group = mesh.get_local_rank(), mesh.get_group()
        self.router = nn.Linear(width, experts, bias=False)
        up = torch.randn(experts, 2 * width, width) * width**-0.5
        down = torch.randn(experts, width, 2 * width) * width**-0.5
        self.up = nn.Parameter(distribute_tensor(up, mesh, [Shard(0)]))
        self.down = nn.Parameter(distribute_tensor(down, mesh, [Shard(0)]))

    def forward(self, x: Tensor) -> Tensor:
        scores, chosen = self.router(x).softmax(-1).topk(2)
        weights = torch.zeros(*x.shape[:2], self.router.out_features, dtype=x.dtype)
        weights = weights.scatter(-1, chosen, scores)
        up, down = self.up.to_local(), self.down.to_local()
        first = self.rank * up.shape[0]
        mine = weights[..., first : first + up.shape[0]]
        hidden = torch.einsum("blw,ehw->belh", x, up).relu()
        out = torch.einsum("belh,ewh,ble->blw", hidden, down, mine)
        return Sum.apply(out, self.group)


class Sum(torch.autograd.Function):
    """The sum over the ranks that hold the experts; each gets the whole gradient."""

    @staticmethod
    def forward(ctx, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("ranks",))
torch.manual_seed(0)
model = LanguageModel(layers=0)
for _ in range(2):
    model.blocks.append(Block(64, 4, Experts(64, 8, mesh)))
for block in model.blocks:
    # The experts are sharded already: each rank has its own.
    fully_shard(block, mesh=mesh, ignored_params={block.mlp.up, block.mlp.down})
fully_shard(
    model, mesh=mesh, ignored_params={p for b in model.blocks for p in (b.mlp.up, b.mlp.down)}
)
assert all(isinstance(p, DTensor) for p in model.parameters())

groups = libmuon.param_groups(
    model,
    muon={"lr": 0.02},
    experts={"lr": 0.02},
    adamw={"lr": 0.003},
    expert_patterns=["*.mlp.up", "*.mlp.down"],
    adamw_patterns=["*.router.weight"],
    matrices={"*.qkv.weight": "rows / 3", "*.mlp.up": "batch 1", "*.mlp.down": "batch 1"},
)
optimizer = libmuon.Muon(groups, clip_norm=1.0)
if dist.get_rank() == 0:
    optimizer.explain()
else:
    optimizer.plan  # making the plan takes all ranks  # noqa: B018

for step, symbols in enumerate(itertools.islice(batches(), 60)):
    loss = model(symbols)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 and dist.get_rank() == 0:
        print(f"step {step:3}  loss {loss.item():.3f}", flush=True)
if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}")
dist.destroy_process_group()
