# Each target makes .venv ready first when it is not. Nothing else is needed on a machine with Python 3.11 to 3.13.
#   make install   make chat   make demo   make test   make quality   make bench   make clean
# The interpreter is found by itself; to choose: make install PYTHON=/path/to/python3.12

BIN := .venv/bin
# Named after the folder: the scripts in .venv hold its path, so a checkout that was moved is not ready.
READY := .venv/.ready-$(firstword $(shell pwd -P | cksum))
IMAGE ?= demo/examples/01-dolphin.png
PROMPT ?= Describe the picture.
# Through the environment, so that a question may hold quotes: make chat IMAGE=photo.png PROMPT="What's here?"
export PYTHON IMAGE PROMPT

.PHONY: install chat demo test quality bench clean
.DEFAULT_GOAL := install

$(READY): pyproject.toml setup.py requirements/cpu.lock requirements/install.sh
	@requirements/install.sh $@

install: $(READY)
	@$(BIN)/mmspec doctor --mend

chat: $(READY)
	@$(BIN)/mmspec chat --image "$$IMAGE" --prompt "$$PROMPT"

demo: $(READY)
	@$(BIN)/mmspec demo

# Engines and servers first, which take minutes a file, so that both workers end together.
test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 40

quality: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@mkdir -p build/types/mmspec
	@find build/types/mmspec -type l -delete
	@ln -s "$(CURDIR)"/mmspec/* "$(CURDIR)/encoders" "$(CURDIR)/heads" "$(CURDIR)/demo" build/types/mmspec/
	@$(BIN)/mypy

bench: $(READY)
	@$(BIN)/mmspec bench lossless --json

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
