"""A rank corrects what scripts and frameworks assume of SageMaker's library; a file that builds an estimator is checked as its job."""

from paceline.part import InCheck, Part


class SageMaker(Part):
    def in_check(self) -> InCheck:
        from paceline.parts.sagemaker.check import EstimatorsInCheck

        return EstimatorsInCheck()

    def in_rank(self) -> str:
        return "parts.sagemaker.in_rank"


PART = SageMaker()
