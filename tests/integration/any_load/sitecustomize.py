"""Lets unchanged agent files listen on a free port of 127.0.0.1 and take calls under any load."""

import livekit.agents.worker as _worker

_worker.AgentServer._default_port = _worker.ServerEnvOption(dev_default=0, prod_default=0)
_worker.AgentServer.__init__.__kwdefaults__["port"] = 0
_worker.AgentServer.__init__.__kwdefaults__["host"] = "127.0.0.1"
# and take calls however busy this machine is with the tests
_worker._DefaultLoadCalc.get_load = classmethod(lambda cls, worker: 0.0)  # type: ignore[assignment,misc,method-assign]
