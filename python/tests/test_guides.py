"""Every script of the guides runs."""

import os
import shutil
import subprocess
import sys

import pytest

GUIDES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guides")
NEEDS = {
    "dask_tasks": ["distributed"],
    "model_server": [],
    "notebook_kernel": ["jupyter_client", "ipykernel"],
    "queue_celery": ["celery", "redis"],
    "queue_rq": ["rq", "redis"],
    "web_gunicorn": ["gunicorn"],
    "web_uvicorn": ["uvicorn"],
}
PROGRAMS = {"queue_celery": "redis-server", "queue_rq": "redis-server"}


def test_every_guide_is_here():
    scripts = {name[:-3] for name in os.listdir(GUIDES) if name.endswith(".py")}
    assert scripts - {"demo"} == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_guide(name, tmp_path):
    for module in NEEDS[name]:
        pytest.importorskip(module)
    program = PROGRAMS.get(name)
    if program and not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    if name == "notebook_kernel" and not shutil.which(os.environ.get("ODFORK", "odfork")):
        pytest.skip("the command odfork was not found; ODFORK names it")
    env = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, os.path.join(GUIDES, f"{name}.py")]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0 and ran.stdout, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
