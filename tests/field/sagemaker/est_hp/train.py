import argparse, os

p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=1)
p.add_argument("--train-batch-size", type=int, default=32)
p.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
args, _ = p.parse_known_args()
print("epochs", args.epochs, "batch", args.train_batch_size)
