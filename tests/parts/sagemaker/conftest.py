"""Ranks without an agent, as tests of what runs inside a rank need them."""

from workplaces import shared_workplace, workplace, written

__all__ = ["shared_workplace", "workplace", "written"]
