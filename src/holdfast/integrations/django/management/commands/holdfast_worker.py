"""`manage.py holdfast_worker`."""

from holdfast.integrations.django.commands import HoldfastCommand


class Command(HoldfastCommand):
    help = "As `holdfast worker`, with the project's app."
    command = "worker"
