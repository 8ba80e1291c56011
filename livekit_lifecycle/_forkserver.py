"""Imported by multiprocessing's forkserver alone, for its effect there.

Job processes are forked from it and inherit its signal handlers, from their first moment on.
"""

from ._compat import protect_job_process

protect_job_process()
