from paceline.estimator import ModelTrainer, SourceCode, Compute, StoppingCondition

trainer = ModelTrainer(
    training_image="x",
    role="x",
    base_job_name="train-ray",
    source_code=SourceCode(source_dir="./scripts", command="python launcher.py -e train.py"),
    compute=Compute(instance_type="local", instance_count=1),
    hyperparameters={"epochs": 25, "learning_rate": 0.001, "name": "a b"},
    stopping_condition=StoppingCondition(max_runtime_in_seconds=600),
)
trainer.train()
