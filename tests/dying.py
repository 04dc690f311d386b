"""A storage whose process dies at its n-th change, for tests of driver crashes at any point."""

from penstock.state.local_storage import LocalStorage


class Died(BaseException):
    pass


class Countdown:
    left: int | None = None
    """The number of changes until it dies. None means that it never dies."""

    def tick(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Died


class Dying(LocalStorage):
    """A storage that dies together with all storages below it."""

    def __init__(self, root, countdown=None):
        super().__init__(root)
        self._countdown = countdown or Countdown()

    @property
    def left(self):
        return self._countdown.left

    @left.setter
    def left(self, number):
        self._countdown.left = number

    def below(self, name):
        return Dying(self.root / name, self._countdown)

    def publish(self, name, data):
        self._countdown.tick()
        super().publish(name, data)
        # The process can die before it learns that it has published.
        self._countdown.tick()

    def write(self, name, data):
        self._countdown.tick()
        super().write(name, data)

    def write_file(self, name, file):
        self._countdown.tick()
        super().write_file(name, file)

    def delete(self, name):
        self._countdown.tick()
        super().delete(name)

    def delete_all(self, names):
        for name in names:
            self.delete(name)

    def delete_below(self, directory):
        for name in self.list(f"{directory}/"):
            self.delete(name)
        super().delete_below(directory)
