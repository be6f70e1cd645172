"""libmuon in the Trainer of Hugging Face transformers, with a tiny Llama made from a config.

python examples/pytorch/hf_trainer.py
"""

import itertools
import tempfile

import torch
from toy import VOCABULARY, batches
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import libmuon

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
model = LlamaForCausalLM(config)
rows = torch.cat(list(itertools.islice(batches(), 60)))
data = [{"input_ids": row, "labels": row} for row in rows]

# The Trainer takes a ready optimizer; it makes the scheduler itself.
groups = libmuon.param_groups(model, muon={"lr": 0.02}, adamw={"lr": 0.003})
optimizer = libmuon.Muon(groups, clip_norm=1.0)

with tempfile.TemporaryDirectory() as output:
    arguments = TrainingArguments(
        output_dir=output,
        per_device_train_batch_size=16,
        num_train_epochs=1,
        max_grad_norm=0,  # libmuon clips, see clip_norm
        lr_scheduler_type="linear",
        logging_steps=20,
        save_steps=30,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, None))
    result = trainer.train()
print(f"loss {trainer.state.log_history[-2]['loss']:.3f}")
