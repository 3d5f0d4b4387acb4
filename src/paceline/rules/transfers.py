"""Pages of the codes E50 to E69: what keeps data, code and artefacts from being moved.

Laid out as those of usage.
"""

PAGES: dict[str, str] = {
    "E50": """\
Nothing installed can reach a URL

What it means: URLs are reached through fsspec and one plug-in per scheme: s3fs for s3://, gcsfs for gs://, adlfs for az:// and so on.
  fsspec itself, or the plug-in for this scheme, is not installed in the environment of this host, or no plug-in knows the scheme.
Why it matters: The job would come up on every host and then find no data.
What to do: Install what the message names, on every host: `pip install 'paceline[s3]'` for S3.
Source: fsspec, registry; docs/data.md.
""",
    "E51": """\
Nothing is there

What it means: A channel's URL, a file that a manifest names, or the bucket of --output or --checkpoints does not exist. For a channel, a
  prefix below which no file lies is the same: SageMaker refuses it as well.
Why it matters: The script would find an empty directory, or the model would have nowhere to go when it is trained.
What to do: Look with the command that is shown. A prefix always ends in a slash here: s3://bucket/run-1 does not take in run-10.
Source: SageMaker API, S3DataSource; docs/data.md.
""",
    "E52": """\
The store denies access, or there are no credentials

What it means: The store knows the address and refuses this user, or the plug-in found no credentials at all. paceline passes your
  environment on to the plug-in and reads no credentials itself; none is ever shown or recorded.
Why it matters: Asked before anything starts, so that hosts do not come up for nothing. Writing is denied only when something is written.
What to do: See whose credentials this host has (`aws sts get-caller-identity`, for other stores their own command), on every host of
  the job; then see that they may list, read and, for --output and --checkpoints, write and delete.
Source: botocore, credential chain; docs/data.md.
""",
    "E53": """\
A transfer broke off

What it means: The store stopped answering, the network went away, or the process that moves files was ended. The plug-in's own
  retries were used up. Every file that is complete stays, under its own name; one that is not has none.
Why it matters: No rank starts on half of its data. At the end of a job, a model that could not be sent is kept on the host.
What to do: Once the store answers, start the job again: what is complete and has not changed is not fetched twice. For an archive, copy
  the file that the message names.
Source: docs/data.md, "When a transfer breaks".
""",
    "E54": """\
Several hosts wrote the same name

What it means: The directories of all hosts become one prefix (--checkpoints) or one archive (model.tar.gz, output.tar.gz), and two hosts
  left different content under one name. Equal content is no clash. Of checkpoints, the host that came first keeps the name, and
  the others' files stay on their hosts; in an archive the first host keeps it, and the others' lie below <host>/.
Why it matters: SageMaker keeps whichever came last, without a word: a sharded checkpoint can then never be loaded.
What to do: Save on rank 0 alone, or put the rank into the name: f"shard-{rank}.pt".
Source: SageMaker documentation, checkpoints (one location for all instances); docs/data.md.
""",
    "E55": """\
A manifest cannot be used

What it means: A channel of type ManifestFile is a JSON list, its first element {"prefix": "s3://bucket/folder/"}, the others names
  below that. This one is not, names nothing, or is too large. AugmentedManifestFile is refused: SageMaker feeds its records through a
  pipe, and there is none here.
Why it matters: Files would be left out without a word.
What to do: Write the manifest as the message shows. In place of an augmented one, take S3Prefix and read the JSON lines in the script.
Source: SageMaker API, S3DataSource, ManifestFile and AugmentedManifestFile.
""",
    "E56": """\
No room on this host's disk

What it means: The files to fetch, or the archive to make, do not fit on the disk where they go. For a channel this is seen before the
  first byte is fetched.
Why it matters: A disk that fills up in the middle of training loses checkpoints and logs.
What to do: Free some room, or lay the tree on a larger disk with `--base-dir DIR`: channels are then fetched below it. Fetched channels of
  earlier jobs lie in .paceline/data and can be deleted.
Source: statvfs(3); docs/data.md.
""",
    "E57": """\
A name in a store cannot be a file

What it means: Stores allow names that no directory can hold: a part that is empty, . or .., more than 255 bytes between two slashes, or a
  name that is also the folder of other names.
Why it matters: A file would be left out, overwrite another one, or lie outside of the channel's directory.
What to do: Choose a prefix without that name, or name the files in a ManifestFile.
Source: path_resolution(7); Amazon S3, object key names.
""",
}
