import os
import sys

with open(os.environ["SHOW_ARGUMENTS"], "a", encoding="utf-8") as file:
    print("got", sys.argv[1:], file=file)
