"""TF_CONFIG of the ranks of a host, made or checked, and its parameter server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.facts import Placement
from paceline.part import Companion, Host, HostPart
from paceline.parts.frameworks import tf_config
from paceline.probes.ports import Bind, holder_of, try_bind

_SERVER = Path(__file__).with_name("parameter_server.py")


@dataclass(frozen=True, slots=True)
class FrameworksOnHost(HostPart):
    host: Host

    def begins(self, attempt: int, placements: Sequence[Placement]) -> Iterator[str]:
        """Look at a TF_CONFIG that the user has set. If the job asks for one, the user's is taken, or refused.

        Raises:  UsageError U57: it does not fit the job, and TensorFlow would wait or fail; U04: the port of its task is in use
        """
        text = self.host.environ.get(tf_config.VARIABLE)
        if text is None or attempt > 0:
            return
        asked = self.host.job.tf_config is not None
        wrong = tf_config.objection(text, placements, self.host.name)
        if wrong is not None and asked:
            raise wrong
        if wrong is not None:
            # Other frameworks do not read it, and a platform may have left it there.
            yield f"TF_CONFIG is set here and does not fit this job: {wrong.what} (U57)"
        elif asked:
            self._check_own_port(tf_config.own_port(text))
            yield "TF_CONFIG was set here and is taken as it is; --tf-config makes none"

    def _check_own_port(self, port: int | None) -> None:
        # TensorFlow listens on all addresses, and names neither the port nor its holder.
        if port is not None and try_bind("0.0.0.0", port) is Bind.IN_USE:
            raise UsageError(
                "U04",
                f"port {port} on {self.host.name} is in use, and TF_CONFIG gives it to the task of this host",
                saw=str(holder_of(port) or "who holds it was not judged: another network namespace"),
                next="name another port in the TF_CONFIG of every host, or unset TF_CONFIG",
            )

    def variables(self, placements: Sequence[Placement], rank: int) -> Mapping[str, str]:
        form = self.host.job.tf_config
        if form is None:
            world_size = sum(placement.ranks for placement in placements)
            return tf_config.address_variables(placements, self.host.addresses, rank, world_size)
        # The user's own was checked before.
        if tf_config.VARIABLE in self.host.environ:
            return {}
        return {tf_config.VARIABLE: tf_config.tf_config(form, placements, rank, self.host.addresses)}

    def companion(self, placements: Sequence[Placement]) -> Companion | None:
        """This host's parameter server, if the job has any. Where the user has set TF_CONFIG, ranks are servers.

        Source:  aws/sagemaker-tensorflow-training-toolkit, training.py, `_run_ps`
        """
        if self.host.job.tf_config != tf_config.PARAMETER_SERVER or tf_config.VARIABLE in self.host.environ:
            return None
        config = tf_config.server_config(placements, self.host.name, self.host.addresses)
        if config is None:
            return None
        return Companion(
            name="parameter server",
            argv=[self.host.python, "-u", str(_SERVER)],
            # On a GPU it would take the memory of the rank beside it. Its work is adding up.
            environment={tf_config.VARIABLE: config, "CUDA_VISIBLE_DEVICES": "-1"},
            # The chief's own server ends with it.
            serves_until="" if placements[0].host == self.host.name else "rank 0, the chief, has ended",
        )
