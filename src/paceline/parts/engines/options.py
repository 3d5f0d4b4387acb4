"""The options of `paceline run` for hosts that are reached by ssh."""

from paceline.option import Option

OPTIONS = (
    Option(
        "hosts",
        "Run on these hosts, reached by ssh; the code is shipped there.",
        "HOST,...",
        more="See [engines.md](engines.md#ssh).",
    ),
    Option("option", "An option of the ssh engine, with --hosts. May be repeated.", "KEY=VALUE", repeatable=True),
    Option("env", "A variable for every rank, with --hosts. May be repeated.", "NAME[=VALUE]", repeatable=True),
)
