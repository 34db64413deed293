"""Builds packages from the sources alone: what an earlier build left in build/lib stays out of a wheel."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class CleanBuild(build_py):
    """Removes the folder that modules are collected in before it collects them."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "dualdnn"), ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": CleanBuild})
