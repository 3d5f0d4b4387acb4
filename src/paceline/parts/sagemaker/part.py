"""A rank corrects what scripts and frameworks assume of SageMaker's library."""

from paceline.part import Part


class SageMaker(Part):
    def in_rank(self) -> str:
        return "parts.sagemaker.in_rank"


PART = SageMaker()
