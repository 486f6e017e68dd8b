"""Apache Superset with an empty store of its own in the working directory, served on the port that it is told.

    python superset_server.py PORT

The steps of ``superset db upgrade``, ``fab create-admin``, ``init`` and ``run``, in one process: it starts slowly.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CONFIG = f"""
SECRET_KEY = "only for a test, and gone with it: {os.urandom(16).hex()}"
SQLALCHEMY_DATABASE_URI = "sqlite:///{Path.cwd()}/superset.db"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False
"""


def main(port: int) -> None:
    config = Path.cwd() / "superset_config.py"
    config.write_text(CONFIG)
    os.environ |= {"SUPERSET_CONFIG_PATH": str(config), "SUPERSET_HOME": str(Path.cwd())}
    from flask_migrate import upgrade
    from superset.app import create_app
    from werkzeug.serving import make_server

    app = create_app()
    with app.app_context():
        upgrade()
        app.appbuilder.add_permissions(update_perms=True)
        app.appbuilder.sm.sync_role_definitions()
        role = app.appbuilder.sm.find_role("Admin")
        assert app.appbuilder.sm.add_user("admin", "A", "Admin", "admin@localhost", role, "admin")
    make_server("127.0.0.1", port, app, threaded=True).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
