from paceline.estimator import PyTorch

same = dict(
    entry_point="train.py",
    source_dir="code",
    role="arn:aws:iam::000000000000:role/training",
    instance_type="ml.m5.xlarge",
    instance_count=1,
    image_uri="000000000000.dkr.ecr.eu-west-1.amazonaws.com/train:1",
    image_uri_region="eu-west-1",
    output_path="s3://a-bucket/models",
    code_location="s3://a-bucket/code",
    engine_options={"region": "eu-west-1"},
    framework_version="2.6.0",
    py_version="py312",
)
for title, given in {
    "on demand": dict(max_wait=3600),
    "spot, less than max_run": dict(use_spot_instances=True, max_wait=3600),
    "spot, more than max_run": dict(
        use_spot_instances=True, max_run=3600, max_wait=7200, checkpoint_s3_uri="s3://a-bucket/checkpoints"
    ),
}.items():
    print("=====", title, flush=True)
    try:
        PyTorch(**given, **same).plan()
        print("request made", flush=True)
    except Exception as error:
        print(type(error).__name__, error)
        for name in ("saw", "next"):
            print("  ", name, "=", getattr(error, name, None), flush=True)
