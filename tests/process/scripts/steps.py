import os
import sys

print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[1:], os.environ.get("MINE", ""), flush=True)
