"""libmuon with Hugging Face Accelerate.

python examples/pytorch/accelerate_train.py
torchrun --nproc-per-node 2 examples/pytorch/accelerate_train.py
"""

import itertools

import torch
from accelerate import Accelerator
from toy import LanguageModel, batches

import libmuon

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = LanguageModel()
groups = libmuon.param_groups(model, muon={"lr": 0.02}, adamw={"lr": 0.003})
optimizer = libmuon.Muon(groups)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=100)
rows = torch.cat(list(itertools.islice(batches(), 120)))
data = torch.utils.data.DataLoader(rows, batch_size=16)
model, optimizer, schedule, data = accelerator.prepare(model, optimizer, schedule, data)

for step, symbols in enumerate(data):
    with accelerator.accumulate(model):
        loss = model(symbols)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    if step % 20 == 0:
        accelerator.print(f"step {step:3}  loss {loss.item():.3f}")
accelerator.print(f"loss {loss.item():.3f}")
