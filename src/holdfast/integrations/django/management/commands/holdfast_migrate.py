"""`manage.py holdfast_migrate`."""

from holdfast.integrations.django.commands import HoldfastCommand


class Command(HoldfastCommand):
    help = "As `holdfast migrate`, with the project's app."
    command = "migrate"
