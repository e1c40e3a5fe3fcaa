"""`manage.py holdfast_reaper`."""

from holdfast.integrations.django.commands import HoldfastCommand


class Command(HoldfastCommand):
    help = "As `holdfast reaper`, with the project's app."
    command = "reaper"
