import sys, os

print("launcher got", sys.argv[1:])
os.execvp(sys.executable, [sys.executable, *sys.argv[sys.argv.index("-e") + 1 :]])
