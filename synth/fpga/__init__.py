"""FPGAs: synthesis, floorplan, place and route, reports."""
