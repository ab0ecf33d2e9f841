"""The scenarios, in the order in which they run. Add yours here."""

from scenarios.agent_killed import AgentKilled
from scenarios.delete_mid_pull import DeleteMidPull
from scenarios.enospc import Enospc
from scenarios.fits import Fits
from scenarios.installed import Installed, InstalledByHelm
from scenarios.jupyterhub_spawn import JupyterHubSpawn
from scenarios.least_privilege import LeastPrivilege
from scenarios.prefect_agent_dies import PrefectAgentDies
from scenarios.prefect_drain import PrefectDrainP, PrefectDrainS, PrefectNaive
from scenarios.prefect_hold import PrefectHold
from scenarios.prefect_legacy import PrefectLegacy
from scenarios.storm import Storm
from scenarios.two_nodes import TwoNodes

ALL = [
    Storm(),
    Enospc(),
    DeleteMidPull(),
    Fits(),
    AgentKilled(),
    LeastPrivilege(),
    Installed(),
    InstalledByHelm(),
    TwoNodes(),
    PrefectHold(),
    PrefectNaive(),
    PrefectDrainS(),
    PrefectDrainP(),
    PrefectAgentDies(),
    PrefectLegacy(),
    JupyterHubSpawn(),
]
