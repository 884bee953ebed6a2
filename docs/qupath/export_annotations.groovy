// Writes the annotations of the open image, or with Run > Run for project of every image, as ntrm data import reads them.
// Unlocks nothing and changes nothing in the project.
def folder = buildFilePath(PROJECT_BASE_DIR, 'annotations')
mkdirs(folder)

def image = getProjectEntry().getImageName()
def name = image.contains('.') ? image.substring(0, image.lastIndexOf('.')) : image
def annotations = getAnnotationObjects().findAll { it.getPathClass() != null && it.getROI().isArea() }
def file = buildFilePath(folder, name + '.geojson')
exportObjectsToGeoJson(annotations, file, 'FEATURE_COLLECTION', 'EXCLUDE_MEASUREMENTS')
println "${name}: ${annotations.size()} annotations"
