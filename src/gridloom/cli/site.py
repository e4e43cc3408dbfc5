"""``gridloom site``: the group of its verbs; each is a module of its own."""

import cyclopts

app = cyclopts.App(name="site", help_format="plaintext", result_action="return_value")

for _verb, _help in {
    "check": "Find out what keeps jobs from running at sites, and what helps.",
    "show": "Show what a site has, what of it is free, and what will be soon.",
    "manifest": "Print what the account of gridloom at a site needs to be allowed.",
}.items():
    app.command(f"gridloom.cli.site_{_verb}:{_verb}", name=_verb, help=_help)
