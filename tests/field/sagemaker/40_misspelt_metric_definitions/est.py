from paceline.estimator import PyTorch, Estimator

definitions = [{"Name": "Accuracy", "Regex": r"Accuracy=([0-9\.]+)"}]
common = dict(role="x", instance_type="local", instance_count=1, framework_version="2.6.0", py_version="py312")
for kw in (
    {"metric_definitons": definitions},
    {"metric_definitions": [{"name": "Accuracy", "regex": "Accuracy=([0-9.]+)"}]},
    {"metric_definitions": [{"Name": "Accuracy", "Regex": "Accuracy=[0-9.]+"}]},
    {"metric_definitions": definitions},
):
    print("=====", kw, flush=True)
    try:
        est = PyTorch("train.py", source_dir=".", **kw, **common)
        est.fit()
        print(est.training_job_analytics.metrics())
    except Exception as error:
        print(type(error).__name__, error, "| saw:", getattr(error, "saw", ""), "| next:", getattr(error, "next", ""))
