"""The recipe of hipvit train for models that scripts make small enough for a CPU."""

RECIPE = """epochs = {epochs}
batch = 16
clip_norm = {clip_norm}

[loss]
label_smoothing = 0.0

[optimizer]
lr = {lr}
betas = [0.9, 0.98]
weight_decay = 0.01

[schedule]
kind = "cosine"
warmup_epochs = 1
warmup_lr = 0.0
min_lr = 0.0

[evaluation]
every = {every}

[checkpoints]
every = {every}
keep = 1
"""
