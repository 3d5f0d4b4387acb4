import argparse

p = argparse.ArgumentParser()
p.add_argument("--fp16", action="store_true")
p.add_argument("--shuffle", type=bool, default=True)
args, rest = p.parse_known_args()
print("fp16", args.fp16, "shuffle", args.shuffle, "rest", rest)
