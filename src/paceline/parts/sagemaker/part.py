"""A rank corrects what scripts and frameworks assume of SageMaker's library; a file that builds an estimator is checked as its job."""

from collections.abc import Mapping

from paceline.part import CheckPart, Part, PartVerb


class SageMaker(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "sagemaker-local": PartVerb(
                about="serve SageMaker's training API here, with local hosts",
                module="paceline.parts.sagemaker.cli.sagemaker_local",
            ),
        }

    def on_check(self) -> CheckPart:
        from paceline.parts.sagemaker.check import EstimatorsOnCheck

        return EstimatorsOnCheck()

    def in_rank(self) -> str:
        return "parts.sagemaker.in_rank"


PART = SageMaker()
