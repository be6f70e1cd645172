"""libmuon in plain PyTorch: one optimizer for the whole model.

python examples/pytorch/plain.py
"""

import itertools

import torch
from toy import LanguageModel, batches

import libmuon

torch.manual_seed(0)
model = LanguageModel()

# Muon trains the weight matrices, AdamW the embedding, the output layer, norms and biases. The
# three matrices of the fused Q, K, V are orthogonalized separately.
groups = libmuon.param_groups(
    model,
    muon={"lr": 0.02, "weight_decay": 0.01},
    adamw={"lr": 0.003},
    matrices={"*.qkv.weight": "rows / 3"},
)
optimizer = libmuon.Muon(groups, clip_norm=1.0)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=100)
optimizer.explain()

for step, symbols in enumerate(itertools.islice(batches(), 100)):
    loss = model(symbols)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 20 == 0:
        print(
            f"step {step:3}  loss {loss.item():.3f}  gradient norm {optimizer.last.grad_norm:.2f}"
        )
print(f"loss {loss.item():.3f}")
