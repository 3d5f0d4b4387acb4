import extra, os

print("entry runs in", os.path.basename(os.getcwd()), extra.word)
