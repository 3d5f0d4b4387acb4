import os, sys

print("cwd", os.getcwd())
print("path0", sys.path[0])
import local_part

try:
    import helpers.maths

    print("helpers found")
except ImportError as error:
    print("helpers NOT found:", error)
print(os.environ.get("SM_USER_ENTRY_POINT"), os.environ.get("SM_MODULE_NAME"), os.environ.get("SM_MODULE_DIR"))
