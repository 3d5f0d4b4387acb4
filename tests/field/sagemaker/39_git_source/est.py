import os
from paceline.estimator import PyTorch

common = dict(role="x", instance_type="local", instance_count=1, framework_version="2.6.0", py_version="py312")
repo = "file://" + os.path.abspath("origin")
for what, kw in {
    "branch": dict(entry_point="train.py", source_dir="training/src", git_config={"repo": repo, "branch": "feature/x"}),
    "entry in a sub-folder": dict(entry_point="src/train.py", source_dir="training", git_config={"repo": repo}),
    "source_dir with ./": dict(entry_point="train.py", source_dir="./training/src/", git_config={"repo": repo}),
    "no such branch": dict(
        entry_point="train.py", source_dir="training/src", git_config={"repo": repo, "branch": "nope"}
    ),
    "no such directory": dict(entry_point="train.py", source_dir="src", git_config={"repo": repo}),
}.items():
    print("=====", what, flush=True)
    try:
        PyTorch(**kw, **common).fit(logs=True)
    except Exception as error:
        print(type(error).__name__, error, "| saw:", getattr(error, "saw", ""), "| next:", getattr(error, "next", ""))
