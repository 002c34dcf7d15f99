"""`python -m infra.grafana` writes the dashboards anew."""

from infra.grafana.render import write

write()
