import os
import time

if os.environ["RANK"] == "1":
    raise ValueError("no such class: 7")
time.sleep(60)
