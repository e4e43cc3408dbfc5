"""``gridloom site``: the group of its verbs; each is a module of its own."""

import cyclopts

app = cyclopts.App(name="site", help_format="plaintext", result_action="return_value")

for _verb, _help in {
    "manifest": "Print what the account of gridloom at a site needs to be allowed.",
}.items():
    app.command(f"gridloom.cli.site_{_verb}:{_verb}", name=_verb, help=_help)
