"""`manage.py holdfast_doctor`."""

from holdfast.integrations.django.commands import HoldfastCommand


class Command(HoldfastCommand):
    help = "As `holdfast doctor`, with the project's app."
    command = "doctor"
