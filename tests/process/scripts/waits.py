import time

print("here", flush=True)
time.sleep(300)
