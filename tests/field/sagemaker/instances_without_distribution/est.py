import sys

from paceline.estimator import PyTorch

same = dict(
    entry_point="count.py",
    source_dir="code",
    role="arn:aws:iam::000000000000:role/training",
    instance_count=2,
    framework_version="2.6.0",
    py_version="py312",
)
amazon = dict(
    image_uri="000000000000.dkr.ecr.eu-west-1.amazonaws.com/train:1",
    image_uri_region="eu-west-1",
    output_path="s3://a-bucket/models",
    code_location="s3://a-bucket/code",
    engine_options={"region": "eu-west-1"},
)


def attempt(title, work):
    print("=====", title, flush=True)
    try:
        work()
        print("without an error", flush=True)
    except Exception as error:
        print(type(error).__name__, error)
        for name in ("saw", "next"):
            print("  ", name, "=", getattr(error, name, None))
    sys.stderr.flush()
    sys.stdout.flush()


attempt("two hosts here", lambda: PyTorch(instance_type="local", **same).fit())
attempt("two machines with four devices each", lambda: PyTorch(instance_type="ml.p3.8xlarge", **same, **amazon).plan())
