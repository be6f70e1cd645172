"""libmuon in Lightning.

python examples/pytorch/lightning_train.py
"""

import itertools
import logging

import lightning
import torch
from toy import LanguageModel, batches

import libmuon


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = LanguageModel()

    def training_step(self, symbols: torch.Tensor) -> torch.Tensor:
        loss = self.model(symbols)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> libmuon.Muon:
        groups = libmuon.param_groups(self, muon={"lr": 0.02}, adamw={"lr": 0.003})
        return libmuon.Muon(groups, clip_norm=1.0)


logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
lightning.seed_everything(0, verbose=False)
data = torch.utils.data.DataLoader(list(itertools.islice(batches(), 100)), batch_size=None)
trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), data)
print(f"loss {trainer.callback_metrics['loss'].item():.3f}")
