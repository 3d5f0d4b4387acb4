import sys, os

print("train got", sys.argv[1:], "SM_HPS", os.environ.get("SM_HPS"))
